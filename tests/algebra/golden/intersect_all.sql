-- SELECT a FROM r INTERSECT ALL SELECT a FROM s

-- @1: sums, key a_3, changes paired
SELECT
  `a_3`,
  `left_rows`,
  `right_rows`,
  `_hw_rows`,
  `_hw_left_rows_count`,
  `_hw_right_rows_count`,
  `_hw_old_a_3`,
  `_hw_old_left_rows`,
  `_hw_old_right_rows`,
  `_hw_old__hw_rows`,
  `_hw_old__hw_left_rows_count`,
  `_hw_old__hw_right_rows_count`,
  `_hw_file`,
  `_hw_position`,
  `_hw_row`,
  `_hw_is`,
  `_hw_was`
FROM (
  SELECT
    `a_3` AS `a_3`,
    `_hw_left_rows_count` AS `left_rows`,
    `_hw_right_rows_count` AS `right_rows`,
    `_hw_rows` AS `_hw_rows`,
    `_hw_left_rows_count` AS `_hw_left_rows_count`,
    `_hw_right_rows_count` AS `_hw_right_rows_count`,
    `_hw_old_a_3` AS `_hw_old_a_3`,
    `_hw_old_left_rows` AS `_hw_old_left_rows`,
    `_hw_old_right_rows` AS `_hw_old_right_rows`,
    `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
    `_hw_old__hw_left_rows_count` AS `_hw_old__hw_left_rows_count`,
    `_hw_old__hw_right_rows_count` AS `_hw_old__hw_right_rows_count`,
    `_hw_file` AS `_hw_file`,
    `_hw_position` AS `_hw_position`,
    `_hw_row` AS `_hw_row`,
    `_hw_rows` > 0 AS `_hw_is`,
    NOT `_hw_row` IS NULL AS `_hw_was`
  FROM (
    SELECT
      `a_3` AS `a_3`,
      CAST((
        COALESCE(`_hw_old__hw_rows`, 0) + COALESCE(`_hw_d__hw_rows`, 0)
      ) AS BIGINT) AS `_hw_rows`,
      CAST((
        COALESCE(`_hw_old__hw_left_rows_count`, 0) + COALESCE(`_hw_d__hw_left_rows_count`, 0)
      ) AS BIGINT) AS `_hw_left_rows_count`,
      CAST((
        COALESCE(`_hw_old__hw_right_rows_count`, 0) + COALESCE(`_hw_d__hw_right_rows_count`, 0)
      ) AS BIGINT) AS `_hw_right_rows_count`,
      `_hw_old_a_3` AS `_hw_old_a_3`,
      `_hw_old_left_rows` AS `_hw_old_left_rows`,
      `_hw_old_right_rows` AS `_hw_old_right_rows`,
      `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
      `_hw_old__hw_left_rows_count` AS `_hw_old__hw_left_rows_count`,
      `_hw_old__hw_right_rows_count` AS `_hw_old__hw_right_rows_count`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM (
      SELECT
        `a_3`,
        `_hw_d__hw_rows`,
        `_hw_d__hw_left_rows_count`,
        `_hw_d__hw_right_rows_count`,
        `_hw_old_a_3`,
        `_hw_old_left_rows`,
        `_hw_old_right_rows`,
        `_hw_old__hw_rows`,
        `_hw_old__hw_left_rows_count`,
        `_hw_old__hw_right_rows_count`,
        `_hw_file`,
        `_hw_position`,
        `_hw_row`
      FROM (
        SELECT
          `a_3`,
          SUM(`_hw_w`) AS `_hw_d__hw_rows`,
          SUM(CASE WHEN NOT `is_left_3` IS NULL THEN `_hw_w` ELSE 0 END) AS `_hw_d__hw_left_rows_count`,
          SUM(CASE WHEN NOT `is_right_3` IS NULL THEN `_hw_w` ELSE 0 END) AS `_hw_d__hw_right_rows_count`
        FROM (
          SELECT
            `a` AS `a_3`,
            `is_left` AS `is_left_3`,
            `is_right` AS `is_right_3`,
            0 AS `branch`,
            `r_rowid` AS `r_rowid`,
            NULL AS `s_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a` AS `a`,
              1 AS `is_left`,
              CAST(NULL AS INT) AS `is_right`,
              `r_rowid`,
              `_hw_w`
            FROM (
              SELECT
                `a` AS `a`,
                `rowid` AS `r_rowid`,
                `_hw_w`
              FROM `r@delta`
            ) AS _t
          ) AS _t
          UNION ALL
          SELECT
            `a_2` AS `a_3`,
            `is_left_2` AS `is_left_3`,
            `is_right_2` AS `is_right_3`,
            1 AS `branch`,
            NULL AS `r_rowid`,
            `s_rowid` AS `s_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a_2` AS `a_2`,
              CAST(NULL AS INT) AS `is_left_2`,
              1 AS `is_right_2`,
              `s_rowid`,
              `_hw_w`
            FROM (
              SELECT
                `a` AS `a_2`,
                `rowid` AS `s_rowid`,
                `_hw_w`
              FROM `s@delta`
            ) AS _t
          ) AS _t
        ) AS _t
        GROUP BY
          `a_3`
      ) AS _l
      LEFT JOIN (
        SELECT
          `a_3` AS `_hw_old_a_3`,
          `left_rows` AS `_hw_old_left_rows`,
          `right_rows` AS `_hw_old_right_rows`,
          `_hw_rows` AS `_hw_old__hw_rows`,
          `_hw_left_rows_count` AS `_hw_old__hw_left_rows_count`,
          `_hw_right_rows_count` AS `_hw_old__hw_right_rows_count`,
          `_hw_file` AS `_hw_file`,
          `_hw_position` AS `_hw_position`,
          `_hw_row` AS `_hw_row`
        FROM `@1@old`
      ) AS _r
        ON `a_3` IS NOT DISTINCT FROM `_hw_old_a_3`
    ) AS _t
  ) AS _t
) AS _t
WHERE
  (
    `_hw_is` OR `_hw_was`
  )
  AND (
    NOT (
      (
        `_hw_is` AND `_hw_was`
      )
      AND (
        `_hw_rows` IS NOT DISTINCT FROM `_hw_old__hw_rows`
        AND `_hw_left_rows_count` IS NOT DISTINCT FROM `_hw_old__hw_left_rows_count`
        AND `_hw_right_rows_count` IS NOT DISTINCT FROM `_hw_old__hw_right_rows_count`
      )
    )
  )

-- @: rows, key a, _hw_key_2, changes signed
SELECT
  `a` AS `a`,
  `_hw_key_2` AS `_hw_key_2`,
  `_hw_file` AS `_hw_file`,
  `_hw_position` AS `_hw_position`,
  `_hw_row` AS `_hw_row`,
  `_hw_w`
FROM (
  SELECT
    `a`,
    `_hw_key_2`,
    `_hw_old_a`,
    `_hw_old__hw_key_2`,
    `_hw_file`,
    `_hw_position`,
    `_hw_row`,
    `_hw_w`
  FROM (
    SELECT
      `a`,
      `_hw_key_2`,
      CAST(SUM(`_hw_w`) AS INT) AS `_hw_w`
    FROM (
      SELECT
        `a_3` AS `a`,
        `ordinal` AS `_hw_key_2`,
        `_hw_w`
      FROM (
        SELECT
          `a_3` AS `a_3`,
          `ordinal`,
          `_hw_w`
        FROM (
          SELECT
            `a_3`,
            `copies`,
            `copy`,
            `ordinal`,
            `_hw_w`
          FROM (
            SELECT
              `a_3`,
              `copies`,
              `_hw_w`
            FROM (
              SELECT
                `a_3` AS `a_3`,
                LEAST(`left_rows`, `right_rows`) AS `copies`,
                `_hw_w`
              FROM (
                SELECT
                  `a_3` AS `a_3`,
                  `left_rows` AS `left_rows`,
                  `right_rows` AS `right_rows`,
                  `_hw_w`
                FROM `@1@delta`
              ) AS _t
            ) AS _t
            WHERE
              `copies` > 0
          ) AS _t
          LATERAL VIEW
          POSEXPLODE(SEQUENCE(1, CAST(`copies` AS INT))) _g AS `ordinal`, `copy`
        ) AS _t
      ) AS _t
    ) AS _t
    GROUP BY
      `a`,
      `_hw_key_2`
    HAVING
      SUM(`_hw_w`) <> 0
  ) AS _l
  LEFT JOIN (
    SELECT
      `a` AS `_hw_old_a`,
      `_hw_key_2` AS `_hw_old__hw_key_2`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM `@@old`
  ) AS _r
    ON `a` IS NOT DISTINCT FROM `_hw_old_a`
    AND `_hw_key_2` IS NOT DISTINCT FROM `_hw_old__hw_key_2`
) AS _t
