-- SELECT r.a, sum(s.y) AS w, max(s.y) AS m FROM r LEFT JOIN s ON r.a = s.a AND s.y <> r.b GROUP BY r.a

-- @: extrema, key a, changes paired
SELECT
  `a`,
  `w`,
  `m`,
  `_hw_rows`,
  `_hw_w_count`,
  `_hw_w_sum`,
  `_hw_m_most`,
  `_hw_in_doubt`,
  `_hw_old_a`,
  `_hw_old_w`,
  `_hw_old_m`,
  `_hw_old__hw_rows`,
  `_hw_old__hw_w_count`,
  `_hw_old__hw_w_sum`,
  `_hw_old__hw_m_most`,
  `_hw_file`,
  `_hw_position`,
  `_hw_row`,
  `_hw_is`,
  `_hw_was`
FROM (
  SELECT
    `a` AS `a`,
    (
      CASE WHEN `_hw_w_count` = 0 THEN NULL ELSE `_hw_w_sum` END
    ) AS `w`,
    `_hw_m_most` AS `m`,
    `_hw_rows` AS `_hw_rows`,
    `_hw_w_count` AS `_hw_w_count`,
    `_hw_w_sum` AS `_hw_w_sum`,
    `_hw_m_most` AS `_hw_m_most`,
    `_hw_in_doubt` AND `_hw_rows` > 0 AS `_hw_in_doubt`,
    `_hw_old_a` AS `_hw_old_a`,
    `_hw_old_w` AS `_hw_old_w`,
    `_hw_old_m` AS `_hw_old_m`,
    `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
    `_hw_old__hw_w_count` AS `_hw_old__hw_w_count`,
    `_hw_old__hw_w_sum` AS `_hw_old__hw_w_sum`,
    `_hw_old__hw_m_most` AS `_hw_old__hw_m_most`,
    `_hw_file` AS `_hw_file`,
    `_hw_position` AS `_hw_position`,
    `_hw_row` AS `_hw_row`,
    `_hw_rows` > 0 AS `_hw_is`,
    NOT `_hw_row` IS NULL AS `_hw_was`
  FROM (
    SELECT
      `a` AS `a`,
      CAST((
        COALESCE(`_hw_old__hw_rows`, 0) + COALESCE(`_hw_d__hw_rows`, 0)
      ) AS BIGINT) AS `_hw_rows`,
      CAST((
        COALESCE(`_hw_old__hw_w_count`, 0) + COALESCE(`_hw_d__hw_w_count`, 0)
      ) AS BIGINT) AS `_hw_w_count`,
      CAST(CASE
        WHEN (
          COALESCE(`_hw_old__hw_w_count`, 0) + COALESCE(`_hw_d__hw_w_count`, 0)
        ) = 0
        THEN NULL
        ELSE (
          COALESCE(`_hw_old__hw_w_sum`, 0) + COALESCE(`_hw_d__hw_w_sum`, 0)
        )
      END AS DECIMAL(38, 0)) AS `_hw_w_sum`,
      GREATEST(`_hw_old__hw_m_most`, `_hw_came__hw_m_most`) AS `_hw_m_most`,
      NOT `_hw_went__hw_m_most` IS NULL
      AND NOT COALESCE((
        `_hw_went__hw_m_most` < `_hw_old__hw_m_most`
      ), FALSE) AS `_hw_in_doubt`,
      `_hw_old_a` AS `_hw_old_a`,
      `_hw_old_w` AS `_hw_old_w`,
      `_hw_old_m` AS `_hw_old_m`,
      `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
      `_hw_old__hw_w_count` AS `_hw_old__hw_w_count`,
      `_hw_old__hw_w_sum` AS `_hw_old__hw_w_sum`,
      `_hw_old__hw_m_most` AS `_hw_old__hw_m_most`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM (
      SELECT
        `a`,
        `_hw_d__hw_rows`,
        `_hw_d__hw_w_count`,
        `_hw_d__hw_w_sum`,
        `_hw_came__hw_m_most`,
        `_hw_went__hw_m_most`,
        `_hw_old_a`,
        `_hw_old_w`,
        `_hw_old_m`,
        `_hw_old__hw_rows`,
        `_hw_old__hw_w_count`,
        `_hw_old__hw_w_sum`,
        `_hw_old__hw_m_most`,
        `_hw_file`,
        `_hw_position`,
        `_hw_row`
      FROM (
        SELECT
          `a`,
          SUM(`_hw_w`) AS `_hw_d__hw_rows`,
          SUM(CASE WHEN NOT `y` IS NULL THEN `_hw_w` ELSE 0 END) AS `_hw_d__hw_w_count`,
          SUM(CASE WHEN `_hw_w` < 0 THEN -(
            `y`
          ) ELSE `y` END) AS `_hw_d__hw_w_sum`,
          MAX(CASE WHEN `_hw_w` > 0 THEN `y` END) AS `_hw_came__hw_m_most`,
          MAX(CASE WHEN `_hw_w` < 0 THEN `y` END) AS `_hw_went__hw_m_most`
        FROM (
          SELECT
            `a` AS `a`,
            `y` AS `y`,
            0 AS `_hw_padded_r_rowid`,
            `r_rowid` AS `r_rowid`,
            NULL AS `s_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a` AS `a`,
              CAST(NULL AS INT) AS `y`,
              `r_rowid`,
              `_hw_w`
            FROM (
              SELECT
                `a` AS `a`,
                `b` AS `b`,
                `rowid` AS `r_rowid`,
                `_hw_w`
              FROM `r@delta`
            ) AS _t
          ) AS _t
          UNION ALL
          SELECT
            `a` AS `a`,
            `y` AS `y`,
            1 AS `_hw_padded_r_rowid`,
            `r_rowid` AS `r_rowid`,
            `s_rowid` AS `s_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a` AS `a`,
              `y` AS `y`,
              `r_rowid`,
              `s_rowid`,
              `_hw_w`
            FROM (
              SELECT
                `a`,
                `b`,
                `a_2`,
                `y`,
                `r_rowid`,
                `s_rowid`,
                `_hw_w`
              FROM (
                SELECT
                  `a`,
                  `b`,
                  `a_2`,
                  `y`,
                  `r_rowid`,
                  `s_rowid`,
                  `_hw_w`
                FROM (
                  SELECT
                    `a` AS `a`,
                    `b` AS `b`,
                    `rowid` AS `r_rowid`,
                    `_hw_w`
                  FROM `r@delta`
                ) AS _l
                INNER JOIN (
                  SELECT
                    `a` AS `a_2`,
                    `y` AS `y`,
                    `rowid` AS `s_rowid`
                  FROM `s@old`
                ) AS _r
                  ON `a` = `a_2` AND `y` <> `b`
              ) AS _t
              UNION ALL
              SELECT
                `a`,
                `b`,
                `a_2`,
                `y`,
                `r_rowid`,
                `s_rowid`,
                `_hw_w`
              FROM (
                SELECT
                  `a_2`,
                  `y`,
                  `a`,
                  `b`,
                  `s_rowid`,
                  `r_rowid`,
                  `_hw_w`
                FROM (
                  SELECT
                    `a` AS `a_2`,
                    `y` AS `y`,
                    `rowid` AS `s_rowid`,
                    `_hw_w`
                  FROM `s@delta`
                ) AS _l
                INNER JOIN (
                  SELECT
                    `a` AS `a`,
                    `b` AS `b`,
                    `rowid` AS `r_rowid`
                  FROM `r@new`
                ) AS _r
                  ON `a` = `a_2` AND `y` <> `b`
              ) AS _t
            ) AS _t
          ) AS _t
        ) AS _t
        GROUP BY
          `a`
      ) AS _l
      LEFT JOIN (
        SELECT
          `a` AS `_hw_old_a`,
          `w` AS `_hw_old_w`,
          `m` AS `_hw_old_m`,
          `_hw_rows` AS `_hw_old__hw_rows`,
          `_hw_w_count` AS `_hw_old__hw_w_count`,
          `_hw_w_sum` AS `_hw_old__hw_w_sum`,
          `_hw_m_most` AS `_hw_old__hw_m_most`,
          `_hw_file` AS `_hw_file`,
          `_hw_position` AS `_hw_position`,
          `_hw_row` AS `_hw_row`
        FROM `@@old`
      ) AS _r
        ON `a` IS NOT DISTINCT FROM `_hw_old_a`
    ) AS _t
  ) AS _t
) AS _t
WHERE
  (
    `_hw_is` OR `_hw_was`
  )
  AND (
    `_hw_in_doubt`
    OR NOT (
      (
        `_hw_is` AND `_hw_was`
      )
      AND (
        `_hw_rows` IS NOT DISTINCT FROM `_hw_old__hw_rows`
        AND `_hw_w_count` IS NOT DISTINCT FROM `_hw_old__hw_w_count`
        AND `_hw_w_sum` IS NOT DISTINCT FROM `_hw_old__hw_w_sum`
        AND `_hw_m_most` IS NOT DISTINCT FROM `_hw_old__hw_m_most`
      )
    )
  )
