-- SELECT a FROM r EXCEPT SELECT a FROM s

-- @: sums, key a, changes paired
SELECT
  `a`,
  `_hw_rows`,
  `_hw_left_rows_count`,
  `_hw_right_rows_count`,
  `_hw_shown`,
  `_hw_old_a`,
  `_hw_old__hw_rows`,
  `_hw_old__hw_left_rows_count`,
  `_hw_old__hw_right_rows_count`,
  `_hw_old__hw_shown`,
  `_hw_file`,
  `_hw_position`,
  `_hw_row`,
  `_hw_is`,
  `_hw_was`,
  `a_3`
FROM (
  SELECT
    `a_3` AS `a`,
    `_hw_rows` AS `_hw_rows`,
    `_hw_left_rows_count` AS `_hw_left_rows_count`,
    `_hw_right_rows_count` AS `_hw_right_rows_count`,
    COALESCE(`_hw_left_rows_count` > 0 AND `_hw_right_rows_count` = 0, FALSE) AS `_hw_shown`,
    `_hw_old_a` AS `_hw_old_a`,
    `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
    `_hw_old__hw_left_rows_count` AS `_hw_old__hw_left_rows_count`,
    `_hw_old__hw_right_rows_count` AS `_hw_old__hw_right_rows_count`,
    `_hw_old__hw_shown` AS `_hw_old__hw_shown`,
    `_hw_file` AS `_hw_file`,
    `_hw_position` AS `_hw_position`,
    `_hw_row` AS `_hw_row`,
    `_hw_rows` > 0 AS `_hw_is`,
    NOT `_hw_row` IS NULL AS `_hw_was`,
    `a_3`
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
      `_hw_old_a` AS `_hw_old_a`,
      `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
      `_hw_old__hw_left_rows_count` AS `_hw_old__hw_left_rows_count`,
      `_hw_old__hw_right_rows_count` AS `_hw_old__hw_right_rows_count`,
      `_hw_old__hw_shown` AS `_hw_old__hw_shown`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM (
      SELECT
        `a_3`,
        `_hw_d__hw_rows`,
        `_hw_d__hw_left_rows_count`,
        `_hw_d__hw_right_rows_count`,
        `_hw_old_a`,
        `_hw_old__hw_rows`,
        `_hw_old__hw_left_rows_count`,
        `_hw_old__hw_right_rows_count`,
        `_hw_old__hw_shown`,
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
          `a` AS `_hw_old_a`,
          `_hw_rows` AS `_hw_old__hw_rows`,
          `_hw_left_rows_count` AS `_hw_old__hw_left_rows_count`,
          `_hw_right_rows_count` AS `_hw_old__hw_right_rows_count`,
          `_hw_shown` AS `_hw_old__hw_shown`,
          `_hw_file` AS `_hw_file`,
          `_hw_position` AS `_hw_position`,
          `_hw_row` AS `_hw_row`
        FROM `@@old`
      ) AS _r
        ON `a_3` IS NOT DISTINCT FROM `_hw_old_a`
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
